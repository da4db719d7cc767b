"""
Airflow seen from outside: the home of one that is started here, its processes, what it answers by REST.

Nothing below imports Airflow: the command line stays quick, and `txsaga engine` needs no Airflow beside it.
"""
