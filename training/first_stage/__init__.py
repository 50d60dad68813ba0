"""The first stage: LambdaMART fitted here, with list-relative columns, or a given model."""
