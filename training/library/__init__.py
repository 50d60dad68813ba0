"""What ``training.Qilcm`` needs beside a run: its parameters as a recipe, words that it refuses, and saving."""
