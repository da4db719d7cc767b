"""What a sensor can wait for, and one poll for all sensors; nothing here imports Airflow."""
