"""Where each step of a flow is settled, and which requests are refused, known when a DAG is parsed."""
