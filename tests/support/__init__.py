"""What tests share: running async tests, stores to run them on, crashes in process and real ones."""
