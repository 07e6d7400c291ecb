"""The client: producers, consumers, administration, under trio, asyncio or neither."""
