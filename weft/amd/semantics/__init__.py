"""What instructions of AMD's GPUs compute, as UOps: one table for lanes, one for scalars."""
