# eventq alone: runs the handlers of all threads in /threads. Build on it to add their programs.
FROM python:3.14-slim AS build
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY eventq eventq
COPY migrations migrations
COPY scripts scripts
RUN python -m venv /opt/eventq && /opt/eventq/bin/pip install --no-cache-dir '.[mcp,postgres]'

FROM python:3.14-slim
# A new volume takes over owner and mode of the folder.
RUN useradd --create-home --uid 1000 eventq && install -d -m 0700 -o eventq -g eventq /threads
COPY --from=build /opt/eventq /opt/eventq
COPY scripts/healthcheck.py /opt/eventq/healthcheck.py
ENV PATH=/opt/eventq/bin:$PATH
USER eventq
WORKDIR /home/eventq
VOLUME /threads
# No init is needed: as PID 1, eventq reaps what handlers leave, and passes signals on.
CMD ["eventq", "work", "--all", "/threads", "--grace", "30s"]
HEALTHCHECK --start-period=10s --timeout=30s CMD ["python", "/opt/eventq/healthcheck.py", "/threads"]
