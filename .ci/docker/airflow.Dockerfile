# Airflow with txsaga in it, and a Java for Spark. Built from the top of the checkout: see docker-compose.yml.
FROM python:3.11-slim

RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-21-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /txsaga
COPY pyproject.toml README.md LICENSE ./
COPY .ci/constraints.txt .ci/constraints.txt
COPY docs/reference/alerts.yml docs/reference/
COPY txsaga txsaga
RUN pip install --no-cache-dir --constraint .ci/constraints.txt ".[airflow,spark,lake,gate]" \
    && useradd --system --no-create-home --uid 999 txsaga \
    && install -d -o txsaga -m 700 /airflow /warehouse

USER txsaga
CMD ["airflow", "version"]
