"""What a sensor can wait for, and one look for all of them; nothing below imports Airflow."""
