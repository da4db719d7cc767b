"""What keeps the code as it should read: tests over the source, none of them runs the product."""
