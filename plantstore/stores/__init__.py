"""The interface of a store, the plants in memory, and the URLs of stores."""
