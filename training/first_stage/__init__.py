"""The first stage: LambdaMART fitted here, with list-relative columns, or a model that somebody brought along."""
