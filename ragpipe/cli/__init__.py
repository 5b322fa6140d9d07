"""Words become one configuration, and a task runs. `command_line` is the door; `api` has the same as functions."""
