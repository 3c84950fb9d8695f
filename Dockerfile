# The images of the operator, of a node and of the audit; choose one by --target.
#
# Three layers in the order of how rarely they change: Python, the dependencies, the project. The
# stages that become images run no command, they only copy: nothing of the building machine is
# left in them.

# Any Debian-like base with Python 3.11 or newer and its venv module.
ARG BASE=python:3.11-slim-bookworm
# The same with a Java runtime. The default is the stage that installs one.
ARG AUDIT_BASE=audit-base
# Everything but the project. The defaults are stages; tools that keep the results name images.
ARG OPERATOR_RUNTIME=operator-runtime
ARG NODE_RUNTIME=node-runtime
ARG AUDIT_RUNTIME=audit-runtime

FROM ${BASE} AS tools
# Debian's Python creates environments but has no pip outside of them.
RUN python3 -m venv /tools
RUN echo 'dledger:x:10001:10001:dledger:/tmp:/usr/sbin/nologin' >> /etc/passwd \
    && echo 'dledger:x:10001:' >> /etc/group

# What each image requires, one file each. A stage of their own, so that other changes to
# pyproject.toml leave the dependencies' layers as they are.
FROM tools AS requirements
COPY pyproject.toml constraints.txt /project/
RUN ["python3", "-c", "\
import pathlib, tomllib; \
project = tomllib.loads(pathlib.Path('/project/pyproject.toml').read_text()); \
extras = project['project']['optional-dependencies']; \
wanted = {'build': project['build-system']['requires'], 'operator': extras['operator'], \
          'node': extras['node'] + extras['client'], 'audit': extras['audit']}; \
[pathlib.Path(f'/project/{name}.txt').write_text('\\n'.join(lines)) \
 for name, lines in wanted.items()]"]

FROM tools AS operator-dependencies
COPY --from=requirements /project/operator.txt /project/constraints.txt /project/
RUN --mount=type=cache,target=/var/cache/pip \
    python3 -m venv --without-pip /venv \
    && /tools/bin/pip --python /venv/bin/python --cache-dir /var/cache/pip install --quiet \
        -r /project/operator.txt -c /project/constraints.txt

FROM tools AS node-dependencies
COPY --from=requirements /project/node.txt /project/constraints.txt /project/
RUN --mount=type=cache,target=/var/cache/pip \
    python3 -m venv --without-pip /venv \
    && /tools/bin/pip --python /venv/bin/python --cache-dir /var/cache/pip install --quiet \
        -r /project/node.txt -c /project/constraints.txt

FROM tools AS audit-dependencies
COPY --from=requirements /project/audit.txt /project/constraints.txt /project/
RUN --mount=type=cache,target=/var/cache/pip \
    python3 -m venv --without-pip /venv \
    && /tools/bin/pip --python /venv/bin/python --cache-dir /var/cache/pip install --quiet \
        -r /project/audit.txt -c /project/constraints.txt

FROM ${BASE} AS operator-runtime
COPY --from=tools /etc/passwd /etc/group /etc/
COPY --from=operator-dependencies /venv /venv
ENV PATH=/venv/bin:/usr/local/bin:/usr/bin:/bin HOME=/tmp PYTHONUNBUFFERED=1
USER 10001:10001

FROM ${BASE} AS node-runtime
COPY --from=tools /etc/passwd /etc/group /etc/
COPY --from=node-dependencies /venv /venv
ENV PATH=/venv/bin:/usr/local/bin:/usr/bin:/bin HOME=/tmp PYTHONUNBUFFERED=1
USER 10001:10001

FROM ${BASE} AS audit-base
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

FROM ${AUDIT_BASE} AS audit-runtime
COPY --from=tools /etc/passwd /etc/group /etc/
COPY --from=audit-dependencies /venv /venv
# Spark starts its Python workers by this name, not by the driver's own interpreter.
ENV PATH=/venv/bin:/usr/local/bin:/usr/bin:/bin HOME=/tmp PYTHONUNBUFFERED=1 \
    PYSPARK_PYTHON=/venv/bin/python
USER 10001:10001

# The project's wheel, installed below a folder from where it is laid over an environment.
FROM tools AS project
COPY --from=requirements /project/build.txt /project/
RUN --mount=type=cache,target=/var/cache/pip \
    /tools/bin/pip --cache-dir /var/cache/pip install --quiet -r /project/build.txt
RUN python3 -m venv --without-pip /venv
COPY . /source
RUN cd /source \
    && /tools/bin/python -m hatchling build --target wheel --directory /wheels \
    && /tools/bin/pip --python /venv/bin/python install --quiet --no-index --no-deps \
        --root /staged /wheels/*.whl

FROM ${OPERATOR_RUNTIME} AS operator
COPY --from=project /staged/venv /venv
ENTRYPOINT ["dledger-operator"]

FROM ${NODE_RUNTIME} AS node
COPY --from=project /staged/venv /venv
ENTRYPOINT ["dledger-node"]

FROM ${AUDIT_RUNTIME} AS audit
COPY --from=project /staged/venv /venv
ENTRYPOINT ["dledger-audit"]
