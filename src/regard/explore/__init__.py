"""The page that looks inside a run: a small server with the model behind it, or one file that works offline.

page/        plain ES modules, served as they are
session      the loaded runs, and the inputs traced most recently
questions    what the page may ask, by name
matrices     what the page may fetch, by name, with `stages`: the vectors between the parts of a model
arrays       matrices on their way to the page
steps        one position's walk through a model
arithmetic   how any number was computed, with `sums`, `sums_of_attention`, `sums_of_embedding`, `sums_of_mixers`
server       HTTP, on this machine only
recording    the page with its answers inside, as one file
"""

HOST = "127.0.0.1"  # nobody else can ask
