"""The server: reads a sealed bundle and answers ``POST /rerank``. ``listwright serve --help`` starts here.

From top to bottom, each knows only what stands below it:

=============  ======================================================================
``supervisor`` several processes behind one socket: supervisor, worker, heartbeat
``app``        the application: what stands below, composed
``api``        endpoints, and the pipeline of a ranking request
``explaining`` explanations, computed in a process of its own
``wire``       formats of requests and answers: JSON, ``.npy``, Open Inference Protocol
``admission``  slots, bodies, early refusals, readiness
``auth``       API keys and their rates
``served_log`` answered requests as records: Avro files, a Redis stream
``bundles``    served bundles: loading, models folder, reload
``transport``  connections: server, HTTP/1.1 within bounds, connection limit
``telemetry``  metrics, logs, drift, traces
``problems``   every error as one body (RFC 9457); ``hook``: the operator's own router
``settings``   ``LISTWRIGHT_*`` environment variables
=============  ======================================================================
"""
