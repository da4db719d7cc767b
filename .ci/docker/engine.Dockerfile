# The roles of a store as a container. Built from the top of the checkout: see docker-compose.yml.
FROM python:3.11-slim

WORKDIR /txsaga
COPY pyproject.toml README.md LICENSE ./
COPY .ci/constraints.txt .ci/constraints.txt
COPY docs/reference/alerts.yml docs/reference/
COPY txsaga txsaga
RUN pip install --no-cache-dir --constraint .ci/constraints.txt ".[lake,metrics]" \
    && useradd --system --no-create-home --uid 999 txsaga \
    && install -d -o txsaga -m 700 /warehouse

USER txsaga
# The engine finishes its round at SIGTERM; as the first process it hears it directly.
ENTRYPOINT ["txsaga"]
CMD ["engine"]
