# docker build --tag gpu-exporter .
#
# With --build-arg AMD_SMI=yes it has the AMD SMI library of Debian (ROCm 6.1, x86-64 only), and Debian's own Python, which the
# package wants. Without it, AMD GPUs are read through a ROCm that is mounted at /opt/rocm. docs/operations.md tells how the
# image is run.

FROM docker.io/library/python:3.13-slim-trixie AS base

FROM base AS build
WORKDIR /src
COPY config/container/build-requirements.txt config/container/requirements.txt config/container/
# Wheels alone: there is no compiler. Python's own pip is left out of what is copied from here; bytecode is in it, since a
# container with a read-only file system would else compile at each start, and so would each worker.
RUN python3 -m venv /build \
    && /build/bin/pip install --no-cache-dir --only-binary=:all: --require-hashes -r config/container/build-requirements.txt \
    && python3 -m venv --without-pip /opt/gpu-exporter \
    && /build/bin/pip --python /opt/gpu-exporter/bin/python3 install --no-cache-dir --only-binary=:all: \
        --require-hashes -r config/container/requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
RUN /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /build/bin/pip --python /opt/gpu-exporter/bin/python3 install --no-cache-dir --no-deps --no-index /wheels/*.whl

FROM base
ARG AMD_SMI=""
# Debian's package lies below /usr, where ROCm is not looked for. Its release is that of the suite.
# hadolint ignore=DL3008
RUN if [ -n "$AMD_SMI" ]; then \
        apt-get update \
        && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends amd-smi \
        && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
        && mkdir -p /opt/rocm/share \
        && ln -s /usr/share/amd_smi /opt/rocm/share/amd_smi; \
    fi
# A number, so that Kubernetes can tell that it is not root; the directory, so that a volume on it belongs to that user.
RUN install -d -o 65532 -g 65532 -m 0700 /var/lib/gpu-exporter
COPY --from=build /opt/gpu-exporter /opt/gpu-exporter
COPY config/container/healthcheck.py /opt/gpu-exporter/healthcheck.py

ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="gpu-exporter" \
      org.opencontainers.image.description="Prometheus exporter for NVIDIA and AMD GPUs whose joules can be trusted" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED" \
      org.opencontainers.image.base.name="docker.io/library/python:3.13-slim-trixie"

# For NVIDIA's container runtime: all GPUs, and of the driver what NVML needs.
ENV PATH=/opt/gpu-exporter/bin:$PATH \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility
USER 65532:65532
WORKDIR /
EXPOSE 10042
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 \
    CMD ["python3", "/opt/gpu-exporter/healthcheck.py"]
# Options of `docker run` replace those of CMD: name the address again.
ENTRYPOINT ["gpu-exporter"]
CMD ["--web.listen-address=:10042", "--journal.directory=/var/lib/gpu-exporter"]
