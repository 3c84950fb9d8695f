# The images of the operator, the node and the audit; choose one with --target.
#
# Each image has three layers, from the one that changes least to the one that changes most: Python,
# the dependencies, the project. The final stages only copy and run no commands, so that no trace of
# the build machine ends up in an image.

# Any Debian-like base image with Python 3.11 or newer and its venv module.
ARG BASE=python:3.11-slim-bookworm
# The same base with a Java runtime. The default is the stage below that installs one.
ARG AUDIT_BASE=audit-base
# Everything but the project. The defaults are the stages below; a tool that caches these stages
# passes image names instead.
ARG OPERATOR_RUNTIME=operator-runtime
ARG NODE_RUNTIME=node-runtime
ARG AUDIT_RUNTIME=audit-runtime

FROM ${BASE} AS tools
# Debian's Python can create virtual environments but has no pip outside of them.
RUN python3 -m venv /tools
RUN echo 'dledger:x:10001:10001:dledger:/tmp:/usr/sbin/nologin' >> /etc/passwd \
    && echo 'dledger:x:10001:' >> /etc/group

# One requirements file for each image. They have their own stage so that other changes to
# pyproject.toml do not invalidate the layers with the dependencies.
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

FROM ${AUDIT_BASE} AS audit-spark
COPY --from=tools /etc/passwd /etc/group /etc/
COPY --from=audit-dependencies /venv /venv
# Spark starts its Python workers with this interpreter; it ignores the driver's.
ENV PATH=/venv/bin:/usr/local/bin:/usr/bin:/bin HOME=/tmp PYTHONUNBUFFERED=1 \
    PYSPARK_PYTHON=/venv/bin/python
USER 10001:10001

# The classes that Spark loads in an audit, so that Java need not read and check them at each start.
# Only these files of the project decide what is loaded, so other changes do not repeat this stage.
FROM audit-spark AS audit-class-data
COPY audit/dledger_audit/__init__.py audit/dledger_audit/class_data.py \
    audit/dledger_audit/interrupts.py audit/dledger_audit/log4j2.properties \
    audit/dledger_audit/make_class_data.py audit/dledger_audit/session.py \
    /tmp/source/dledger_audit/
RUN PYTHONPATH=/tmp/source python -m dledger_audit.make_class_data /tmp/class-data/spark.jsa

FROM audit-spark AS audit-runtime
COPY --from=audit-class-data /tmp/class-data /class-data
ENV DLEDGER_AUDIT_CLASS_DATA=/class-data/spark.jsa

# The project's wheel, installed below /staged; the image stages copy it over their environment.
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
