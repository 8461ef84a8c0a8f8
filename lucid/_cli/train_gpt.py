"""`lucid train gpt`."""

from lucid._cli.train_example import command

add_arguments, run = command("gpt")
