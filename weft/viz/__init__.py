"""The viewer: what a program became at every step, recorded, saved and shown in a browser."""
