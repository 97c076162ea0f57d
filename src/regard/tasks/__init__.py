"""Tasks, one file each: settings, data, model, loss, scores, and what a loaded run can do.

`regard.registry.TASKS` lists them. Their files import torch and what needs it inside methods: settings are read from
these files, and a mistake in the settings is reported without the seconds that loading torch takes.
"""
