"""What users decorate: workflows, steps, events. Checks early, registers names, builds what the kernel runs."""
