"""The model: values, lifecycles and layouts in plain Python."""
