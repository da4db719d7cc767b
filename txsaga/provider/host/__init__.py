"""The supervisor of an Airflow on one machine: `python -m txsaga.provider.host`, started by `txsaga airflow up`."""
