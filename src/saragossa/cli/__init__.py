"""The command line: one module a subcommand, imported when it runs. Nothing imports this package."""
