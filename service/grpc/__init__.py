"""The Open Inference Protocol over gRPC. Off, and not imported, unless a setting names its port.

==========  ===========================================================================
``server``  the gRPC server, whose calls are requests of the application
``routes``  the protocol's methods, as endpoints
``codec``   its messages; ``ModelInfer`` to a list to rank, and a ranking to its answer
==========  ===========================================================================
"""
