"""The processes that run the handlers of consumers: dispatch, supervisors, workers."""
