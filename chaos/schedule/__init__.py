"""What is done to a cluster and when: plans, made from a seed."""
