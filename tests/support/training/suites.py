"""A suite on data of seconds: its recipe, its rows, and its command line."""

from listwright_lab import experiment
from support.training.tiny import TINY

ONE_EPOCH = TINY.replace("max_epochs = 3", "max_epochs = 1")
TABLE2 = (
    "lambdamart",
    "lambdamart+relative",
    "dlcm",
    "dcm",
    "mlp",
    "qilcm",
    "qilcm2",
    "qilcm+relative",
    "qilcm2+relative",
    "shipped",
)


def run(*arguments):
    return experiment.main([str(argument) for argument in arguments])


def printed_text(capsys):
    return " ".join(capsys.readouterr().out.split())
