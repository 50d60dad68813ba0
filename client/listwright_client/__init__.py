"""Client of a Listwright service: :class:`Client`, or :class:`AsyncClient` with the same methods.

Modules from top to bottom; each imports only from below:

    client      sends and waits: the only part that sync and async do not share
    call        one question with its attempts: next request; answer, pause or error
    questions   a question: path, body, and how to read its answer
    body        NumPy and rows to JSON             answers     JSON to NumPy and frozen values
    explanations    JSON to frozen values of explanations
    refusals    an answer or failure to an error   deadline    time limits of a call and of the server
    exchange    reply or failure of one request    options     options of a call          errors      the tree
    frames      pandas and polars to NumPy or rows    numerals    numbers to JSON
"""

from listwright_client.answers import FeatureInfo, Info, Meta, ProbabilityInfo, Ranking, Result, Route
from listwright_client.client import AsyncClient, Client
from listwright_client.errors import (
    ConnectionFailedError,
    DeadlineExceededError,
    Fault,
    ListwrightError,
    OverloadedError,
    Problem,
    RequestError,
    ServerError,
    UnavailableError,
    UnexpectedAnswerError,
)
from listwright_client.explanations import (
    Against,
    Anomaly,
    Change,
    Contribution,
    Explained,
    Explanation,
    GoalsExplanation,
    GoalShare,
    Move,
    Passing,
    Place,
    RouterEstimate,
    RuleReasons,
    StageExplanation,
    UnusualFeature,
)

__all__ = [
    "Against",
    "Anomaly",
    "AsyncClient",
    "Change",
    "Client",
    "ConnectionFailedError",
    "Contribution",
    "DeadlineExceededError",
    "Explained",
    "Explanation",
    "Fault",
    "FeatureInfo",
    "GoalShare",
    "GoalsExplanation",
    "Info",
    "ListwrightError",
    "Meta",
    "Move",
    "OverloadedError",
    "Passing",
    "Place",
    "ProbabilityInfo",
    "Problem",
    "Ranking",
    "RequestError",
    "Result",
    "Route",
    "RouterEstimate",
    "RuleReasons",
    "ServerError",
    "StageExplanation",
    "UnavailableError",
    "UnexpectedAnswerError",
    "UnusualFeature",
]
