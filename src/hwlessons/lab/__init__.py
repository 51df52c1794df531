"""What is run and measured with torch: devices, the small models, corpus, training, timing, memory."""
