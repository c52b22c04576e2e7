"""Tables, graphs and other people's objects: in and out."""
