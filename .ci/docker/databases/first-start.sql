-- Logins and databases; run once, when the server's folder is made. The passwords are those of .env.
\getenv airflow AIRFLOW_DB_PASSWORD
\getenv engine ENGINE_DB_PASSWORD
\getenv flows FLOWS_DB_PASSWORD
CREATE ROLE airflow LOGIN PASSWORD :'airflow';
CREATE ROLE engine LOGIN PASSWORD :'engine';
-- Owns the databases of the example DAGs. Tasks and the engine share it: only the login that prepared a branch may finish it.
CREATE ROLE flows LOGIN PASSWORD :'flows';

-- The store. Its owner is the server's administrator, whom only the services `migrate` and `grant` know.
REVOKE ALL ON DATABASE txsaga FROM PUBLIC;
GRANT CONNECT ON DATABASE txsaga TO airflow, engine;

-- Airflow's own tables.
CREATE DATABASE airflow OWNER airflow;

-- What the example DAGs work on.
CREATE DATABASE bank_current OWNER flows;
CREATE DATABASE bank_mortgage OWNER flows;
CREATE DATABASE bank_audit OWNER flows;
CREATE DATABASE lake_reports OWNER flows;
CREATE DATABASE travel_flight OWNER flows;
CREATE DATABASE travel_hotel OWNER flows;
CREATE DATABASE travel_car OWNER flows;

REVOKE ALL ON DATABASE airflow, bank_current, bank_mortgage, bank_audit, lake_reports, travel_flight, travel_hotel, travel_car
    FROM PUBLIC;
