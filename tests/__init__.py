"""The promises of plantstore, each test one."""
