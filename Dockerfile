# One image for CPU and GPU; what differs are build arguments:
#
#   docker build -t gossamer .                                        # CPU: 0.9 GB of packages (PyTorch 0.6) and the base
#   docker build -t gossamer:gpu --build-arg DEVICE=cuda \
#     --build-arg TORCH_INDEX_URL=...CUDA-builds-of-PyTorch... .      # fails loudly where there is no GPU
#   docker build --build-arg WITH_MODEL=no ...                        # weights are mounted: GOSSAMER_MODELS=/models/en-fr
#
#   docker run --read-only --tmpfs /tmp --cap-drop ALL -p 8000:8000 -e GOSSAMER_ALLOW_OPEN=true gossamer
#
# It runs as any user, writes nowhere (but for /tmp, if something has to), needs no shell and no network, and stops in order
# on SIGTERM. Without keys it starts only if told that everyone may use it (GOSSAMER_ALLOW_OPEN, or GOSSAMER_KEYS_FILE).

ARG BASE_IMAGE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build

# Empty: pip's own index. PyTorch has one for each kind of build; on pip's own index the one for Linux is for CUDA.
ARG TORCH_INDEX_URL=
# For builds behind a mirror: pip reads each that is given from its environment.
ARG PIP_CERT PIP_FIND_LINKS PIP_EXTRA_INDEX_URL PIP_CONSTRAINT
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore

WORKDIR /build
RUN ["python3", "-m", "venv", "/gossamer"]
COPY pyproject.toml ./
COPY requirements requirements
# What changes seldom comes first, so that a change of the code builds in seconds.
RUN python3 -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
print(*p['dependencies'], *p['optional-dependencies']['redis'], sep='\n')" > needed.txt \
 && grep -i '^torch==' needed.txt > torch.txt \
 && /gossamer/bin/pip install --no-compile -c requirements/lock.txt ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} -r torch.txt \
 && /gossamer/bin/pip install --no-compile -c requirements/lock.txt -r needed.txt \
 # Headers, tests and tools that only serve to build against these packages.
 && cd /gossamer/lib/python3*/site-packages \
 && rm -rf torch/include torch/test torch/share torch/bin/protoc* torch/lib/*.a \
 && find . -type d -name tests -path './numpy/*' -prune -exec rm -rf {} +

# A C compiler for the decode kernels (setup.py); it stays behind in this stage. Without them the image would work, and be slow.
RUN command -v gcc >/dev/null \
 || { apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*; }

COPY setup.py README.md LICENSE ./
COPY gossamer gossamer
COPY model model
COPY service service
ARG WITH_MODEL=yes
RUN if [ "$WITH_MODEL" != yes ]; then rm -rf model/pretrained/*/; fi \
 && /gossamer/bin/pip install --no-compile --no-deps . \
 && { [ "$(uname -m)" != x86_64 ] || \
      (cd /gossamer/lib/python3*/site-packages/model/native && ls libkernels_avx512.so* libkernels_avx2.so*); } \
 && /gossamer/bin/pip uninstall -y -q pip setuptools \
 # Compiled now, because nothing can be written later; with hashes, so that the time of a file does not matter. PyTorch
 # has files for newer Pythons than ours, which are left as they are; ours must compile.
 && { python3 -m compileall -qq -j 0 --invalidation-mode unchecked-hash /gossamer/lib || true; } \
 && cd /gossamer/lib/python3*/site-packages \
 && python3 -m compileall -q --invalidation-mode unchecked-hash gossamer model service \
 && chmod -R a+rX /gossamer

FROM ${BASE_IMAGE}

ARG VERSION=0.1.0
ARG REVISION=unknown
ARG DEVICE=cpu
LABEL org.opencontainers.image.title="Gossamer" \
      org.opencontainers.image.description="A translation server you can see through" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

COPY --from=build /gossamer /gossamer

ENV PATH=/gossamer/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    GOSSAMER_HOST=0.0.0.0 \
    GOSSAMER_PORT=8000 \
    GOSSAMER_DEVICE=${DEVICE} \
    # `docker stop` kills after 10 seconds: what is not done by then is refused in order before. Raise both together.
    GOSSAMER_STOP_GRACE_SECONDS=7 \
    GOSSAMER_LOG_FORMAT=json

USER 65532:65532
WORKDIR /tmp
EXPOSE 8000
STOPSIGNAL SIGTERM
# Live, not ready: what is loading, or drains, is not to be killed. Kubernetes ignores this and has probes of its own.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f'http://127.0.0.1:{os.environ[\"GOSSAMER_PORT\"]}/healthz', timeout=4)"]
ENTRYPOINT ["gossamer"]
CMD ["serve"]
