"""Which test shows which requirement. Reads the lists beside it and the marks on the tests; runs none."""
