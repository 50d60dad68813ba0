# The service with the demo bundle inside. To serve your own: mount it and set LISTWRIGHT_BUNDLE to its path, or mount a
# folder of bundles and set LISTWRIGHT_MODELS, which counts for more.
ARG BASE_IMAGE=python:3.11-slim

# hadolint ignore=DL3006
FROM ${BASE_IMAGE} AS builder
# A compiler for the modules that want one; it stays behind in this stage.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && python -m venv /opt/venv
WORKDIR /src
COPY pyproject.toml constraints.txt ./
# The dependencies first and alone: their layer outlives changes of the code.
# Traces come with them (a few MB, not imported unless a receiver is named): nothing can be added to the image later.
RUN python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*p['dependencies'], *(one for extra in ('grpc', 'loop', 'otel', 'remote') for one in p['optional-dependencies'][extra]), sep='\n')" \
        > requirements.txt \
    && /opt/venv/bin/python -m pip install --no-cache-dir -r requirements.txt -c constraints.txt
COPY README.md LICENSE setup.py ./
COPY listwright listwright
COPY ranking ranking
COPY service service
# pip leaves the environment last: nothing installs in production.
RUN /opt/venv/bin/python -m pip install --no-cache-dir --no-deps . \
    && rm -r listwright ranking service \
    && /opt/venv/bin/python -c "import grpc.aio, listwright.ranking.compiled.linear_product, listwright.ranking.compiled.list_summary, listwright.ranking.compiled.relative_columns, listwright.ranking.compiled.tree_traversal, listwright.service.wire.json_fast, listwright.service.telemetry.otel, listwright.service.served_log.writer, listwright.service.served_log.stream" \
    && /opt/venv/bin/python -m pip uninstall --yes setuptools pip
COPY models/demo/1 /models/demo/1
# A checkout made under a strict umask would hide the bundle from the service's user, which OpenShift chooses.
RUN chmod -R a+rX /models

# hadolint ignore=DL3006
FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="Listwright" \
      org.opencontainers.image.description="Listwise reranking behind one endpoint: LightGBM first stage, QILCM second stage" \
      org.opencontainers.image.licenses="Apache-2.0"
# libgomp1 is LightGBM's; the base image's own release decides its version.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY --from=builder /opt/venv /opt/venv
COPY --from=builder /models /models
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    LISTWRIGHT_BUNDLE=/models/demo/1 \
    LISTWRIGHT_HOST=0.0.0.0 \
    LISTWRIGHT_PORT=8000
WORKDIR /
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["listwright", "health"]
ENTRYPOINT ["listwright", "serve"]
