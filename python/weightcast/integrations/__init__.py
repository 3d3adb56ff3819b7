"""What connects weightcast to other projects' trainers. Each module imports its project, and nothing else imports it."""
