"""The page that looks inside a run: a small server with the model behind it, or one file that works from the disk.

page/        plain ES modules, served as they are
session      the loaded runs, and what has been traced of them
questions    what the page may ask, by name
arrays       matrices on their way to the page
steps        the walk of one position through a model, with `stages`: the vectors on its way
arithmetic   how any number of it came about, with `sums`, `sums_of_attention`, `sums_of_embedding`
server       HTTP, on this machine only
recording    the page with its answers in it, as one file
"""

HOST = "127.0.0.1"  # nobody else can ask
