# An image that takes the variables of apache/kafka's: change the image line of a compose file, and it runs.
#   docker build -t moldau . && docker run -p 127.0.0.1:9092:9092 -p 127.0.0.1:9464:9464 -e KAFKA_MOLDAU_CONSOLE=true moldau
# The first build takes some minutes, most of them the compile of the hot path; a change of the sources repeats it.
# The same with Spark and a Java runtime, for a driver and for workers of Spark:
#   docker build -t moldau-spark --target spark --build-arg EXTRAS=tiered,spark,delta .
# The name of the base may be one with a digest: --build-arg BASE=python:3.11-slim-bookworm@sha256:...
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
# The hot path is compiled; a base with Debian's own Python has its headers in a package of their own.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
 && { python3 -c "import sys, sysconfig, os.path as p; sys.exit(not p.exists(p.join(sysconfig.get_path('include'), 'Python.h')))" \
   || apt-get install -y --no-install-recommends python3-dev; }
RUN python3 -m venv /opt/moldau
ARG EXTRAS=tiered
WORKDIR /src
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY building building
COPY moldau moldau
COPY broker broker
COPY protocol protocol
COPY storage storage
COPY security security
COPY replication replication
COPY kraft kraft
COPY coordinator coordinator
COPY tables tables
COPY spark_jobs spark_jobs
COPY lake lake
COPY backup backup
COPY testing testing
COPY pyspark_moldau pyspark_moldau
RUN : "the packages that a node needs, each with the hash that the lock file has" \
 && /opt/moldau/bin/python -m pip install -q --no-cache-dir --disable-pip-version-check --require-hashes -r building/image/requirements.txt
RUN : "compiles the hot path: one to three minutes without output" \
 && PIP_CONSTRAINT=requirements.lock MOLDAU_WHEEL=compiled \
    /opt/moldau/bin/python -m pip install --no-cache-dir --disable-pip-version-check ".[$EXTRAS]" \
 && /opt/moldau/bin/python -m pip uninstall --yes --quiet setuptools pip \
 && find /opt/moldau -name __pycache__ -prune -exec rm -r {} + \
 && /opt/moldau/bin/python -m compileall -q /opt/moldau/lib

FROM ${BASE} AS spark
# Builders without BuildKit build this stage also for the plain image; it is then small.
ARG EXTRAS=tiered
RUN case ",$EXTRAS," in \
      *,spark,*) install -d /usr/share/man/man1 \
        && apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
        && rm -rf /var/lib/apt/lists/* ;; \
      *) echo "without the extra spark: no Java" ;; \
    esac \
 && useradd --uid 1000 --create-home --shell /usr/sbin/nologin moldau \
 && install -d -o moldau -g moldau /output
COPY --from=build /opt/moldau /opt/moldau
ENV PATH=/opt/moldau/bin:$PATH PYTHONDONTWRITEBYTECODE=1
USER moldau
WORKDIR /output
VOLUME /output
CMD ["sleep", "infinity"]

FROM ${BASE}
LABEL org.opencontainers.image.title="moldau" \
      org.opencontainers.image.description="A broker that Apache Kafka's clients and tools take for Apache Kafka 4.3.1" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 1000 --no-create-home --shell /usr/sbin/nologin moldau \
 && for each in /var/lib/kafka/data /tmp/kafka-logs /tmp/kraft-combined-logs /mnt/shared/config; do \
      install -d -o moldau -g moldau "$each"; done
# The places where start scripts for other images expect their commands; they change some of these files (docs/testing.md).
COPY --chown=moldau:moldau building/image/etc/kafka /etc/kafka
COPY --chown=moldau:moldau building/image/etc/confluent /etc/confluent
COPY building/image/usr/local/bin/kafka-storage /usr/local/bin/kafka-storage
RUN chown -R moldau:moldau /etc/kafka /etc/confluent /var/lib/kafka && install -d -o moldau -g moldau /opt/kafka
COPY --from=build /opt/moldau /opt/moldau
ARG EXTRAS=tiered
ENV PATH=/opt/moldau/bin:$PATH PYTHONDONTWRITEBYTECODE=1 MOLDAU_IMAGE_EXTRAS=$EXTRAS
USER moldau
WORKDIR /var/lib/kafka
VOLUME /var/lib/kafka/data
EXPOSE 9092 9464
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD ["moldau", "health"]
CMD ["moldau", "container"]
