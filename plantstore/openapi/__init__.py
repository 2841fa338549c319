"""The OpenAPI document, and a page on which a person can try the operations."""
