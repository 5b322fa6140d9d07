"""What `task=` can be. A task is `run(config, console) -> exit code`, composed of stages."""
