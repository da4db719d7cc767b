"""Steps that commit one by one, what undoes them, and who sees to it when their owner is gone."""
