"""The rows of the table, one module an area. Adding a key is adding a row here and using it."""
