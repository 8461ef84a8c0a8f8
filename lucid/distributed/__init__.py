"""Several processes that compute together: `torch.distributed`'s names. See README.md in this folder.

>>> import lucid
>>> import lucid.distributed as dist
>>> dist.init_process_group("gloo", rank=0, world_size=1)
>>> x = lucid.tensor([1.0, 2.0])
>>> dist.all_reduce(x)
>>> x, dist.get_rank(), dist.get_world_size()
(tensor([1., 2.]), 0, 1)
>>> dist.destroy_process_group()
"""

from ..errors import DistributedError as DistributedError
from .collectives import all_gather as all_gather
from .collectives import all_gather_into_tensor as all_gather_into_tensor
from .collectives import all_gather_object as all_gather_object
from .collectives import all_reduce as all_reduce
from .collectives import all_to_all as all_to_all
from .collectives import barrier as barrier
from .collectives import broadcast as broadcast
from .collectives import broadcast_object_list as broadcast_object_list
from .collectives import gather as gather
from .collectives import gather_object as gather_object
from .collectives import monitored_barrier as monitored_barrier
from .collectives import recv as recv
from .collectives import reduce as reduce
from .collectives import reduce_scatter as reduce_scatter
from .collectives import reduce_scatter_tensor as reduce_scatter_tensor
from .collectives import scatter as scatter
from .collectives import send as send
from .process_group import ProcessGroup as ProcessGroup
from .process_group import ReduceOp as ReduceOp
from .world import GroupMember as GroupMember
from .world import Work as Work
from .world import default_pg_timeout as default_pg_timeout
from .world import destroy_process_group as destroy_process_group
from .world import get_backend as get_backend
from .world import get_global_rank as get_global_rank
from .world import get_group_rank as get_group_rank
from .world import get_node_local_rank as get_node_local_rank
from .world import get_process_group_ranks as get_process_group_ranks
from .world import get_rank as get_rank
from .world import get_world_size as get_world_size
from .world import group as group
from .world import init_process_group as init_process_group
from .world import is_available as is_available
from .world import is_gloo_available as is_gloo_available
from .world import is_initialized as is_initialized
from .world import is_mpi_available as is_mpi_available
from .world import is_nccl_available as is_nccl_available
from .world import is_torchelastic_launched as is_torchelastic_launched
from .world import new_group as new_group

DistError = DistBackendError = DistNetworkError = DistributedError
