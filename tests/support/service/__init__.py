"""The service in this process: bundles, requests and connections of the tests' own."""
