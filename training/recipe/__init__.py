"""What a recipe may say: its tables as frozen values, and the options of a command line that change it."""
