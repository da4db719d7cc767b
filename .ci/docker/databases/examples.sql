-- What the example DAGs work on; run once, when the server's folder is made.
CREATE DATABASE bank_current;
CREATE DATABASE bank_mortgage;
CREATE DATABASE bank_audit;
CREATE DATABASE lake_reports;
CREATE DATABASE travel_flight;
CREATE DATABASE travel_hotel;
CREATE DATABASE travel_car;
