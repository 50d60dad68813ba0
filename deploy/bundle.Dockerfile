# A bundle as an image: its files under /bundle, and nothing else. The build context is the bundle's folder:
#   docker build -f deploy/bundle.Dockerfile -t registry.example.com/shop/bundle:8 models/shop/8
# An image from scratch has no programs, so it is mounted as an image volume. Where an init container copies the bundle,
# the image needs `cp`: BASE_IMAGE names one that has it. The service's own image costs a node no further download.
ARG BASE_IMAGE=scratch

# hadolint ignore=DL3006
FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="Listwright bundle"
# Every user may read the files, whatever umask they were fitted under: OpenShift chooses the user.
COPY --chown=10001:10001 --chmod=0755 . /bundle/
USER 10001:10001
