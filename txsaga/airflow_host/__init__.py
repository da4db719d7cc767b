"""
Airflow on one machine, from outside: its home, its processes, its REST answers.

Nothing here imports Airflow: the command line stays quick, and `txsaga engine` works without Airflow installed.
"""
